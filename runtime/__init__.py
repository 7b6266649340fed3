"""What a package carries to run itself: plan, memory, weights, executor, scheduler, sampler, command line.

It stands alone: nothing here imports dinfc (the same files lie in every package as `runtime/`), all imports inside are
relative, and neither torch nor safetensors is needed. `tokenizers` is imported only where text is read or written.
"""
