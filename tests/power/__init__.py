"""Power cuts: what a process wrote and no fsync confirmed is gone, as on a real disk.

A library that is preloaded into the product's processes notes each change of files with what was
there before. After the processes were killed, a cut undoes what no fsync confirmed: all of it, or
pages and directory changes drawn by chance.
"""
