"""Analysis of a loop before C++ is written: vectorisation, parallel axes, streaming."""
