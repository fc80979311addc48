"""The owner's gateway: tools that speak Arrow Flight SQL send SQL to the owner's databases and get Arrow back.

It runs on the owner's side with the owner's keys, so anyone with one of its tokens can read all of its databases. The
provider sees what it sees of any query. In the order of a call:

config       the settings file, and the tokens of clients
calls        every call: who, how long, what went wrong; never what was asked
messages     Flight SQL's messages
server       the calls themselves, from start to stop
turns        whose statement runs, on which connection, and when it is stopped
databases    which database is meant, and what a statement would return
statements   prepared statements, and the shelf where they and results wait for their clients
metadata     catalogs, tables, types, and what the gateway can do
"""
