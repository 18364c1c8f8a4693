"""Kernels interpreted as Python, row by row, with every array access checked: `debug=True`.

| file | holds |
|---|---|
| `module.py` | a launcher's text run as Python: entries with the signatures of the compiled ones |
| `functions.py` | kernels as Python functions: the same code, other meanings of its global names |
| `scalars.py` | what `np`, `math` and number types mean there: numpy's scalars under the rules of compiled code |
| `checked_record.py` | `w` |
| `checked_array.py` | arrays, and the checks of every access |
| `faults.py` | the sentence of an error: kernel, file, line, row |
"""
