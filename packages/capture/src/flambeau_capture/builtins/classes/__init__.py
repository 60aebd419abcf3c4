"""Classes: calls of them, class statements, classes that a program makes."""
