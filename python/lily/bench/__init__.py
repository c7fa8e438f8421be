"""How fast does this machine read and write? Prompt lengths from 256 to 131,072, reading and writing apart.

contract.py says what every measurement keeps, arms.py runs one, runner.py all of them; plot.py draws, command.py is
`lily bench`. Nothing is imported here, so that the command starts quickly.
"""
