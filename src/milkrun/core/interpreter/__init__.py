"""Worlds played as plain Python: the very kernels of compiled play, row by row, with every array access checked.

| file | holds |
|---|---|
| `module.py` | a launcher's text run as Python: entries that are called as compiled ones are, and leave the same bits |
| `functions.py` | kernels as functions of Python |
| `record.py` | `w` |
| `arrays.py` | arrays, and the checks of every access |
| `numbers.py` | the numbers of compiled code |
| `words.py` | what `np`, `math` and the builtins mean there |
| `asked.py` | what is left to numba: methods of arrays, and functions that `words.py` does not know |
| `faults.py` | the sentence of an error: kernel, file, line, row |
"""
