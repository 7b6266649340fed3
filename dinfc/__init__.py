"""dinfc: a compiler for the DeepSeek-V4.1-Flash forward pass.

This folder holds what ties the others together: command line, diagnostics and the pipeline. `catalogue`, `diagnostics`
and `output` are leaves that every folder but `runtime` may import. Importing `dinfc` does nothing.
"""
