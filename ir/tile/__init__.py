"""Tile IR: programs over memory classes, their text, their verifier. Imports only `dinfc.ir`."""
