"""Do two engines think alike? comparison.py compares, golden.py is what a reference said, sides.py are those who read.

Nothing is imported here, so that the command starts quickly; command.py is `lily verify`.
"""
