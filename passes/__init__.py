"""Compiler passes over tensor IR, one a file; the only list of them is `dinfc/pipeline.py`.

May import `dinfc.ir` and `dinfc.diagnostics`, nothing else of dinfc: targets and schedules are reached through the
protocols of `ir/protocols.py`.

A pass owns the module that it is given: the pipeline clones the caller's module once, passes then edit in place.
"""
