"""The model as the user gives it: config.json, model.yaml, checkpoint names, tables, tokenizer, synthetic checkpoints.

May import `dinfc.ir` and the leaves `dinfc.diagnostics` and `dinfc.catalogue`; nothing here imports passes, codegen,
targets or runtime.
"""
