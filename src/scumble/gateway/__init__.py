"""The owner's gateway: tools that speak Arrow Flight SQL come in; SQL goes to the databases, and Arrow comes back.

It runs at the owner's side with the owner's keys: whoever has one of its tokens may read everything in its databases.
The provider sees what it sees of any query. In the order of a call:

config, tokens            what the file says, who may come in
calls, refusals           every call: who, how long, what went wrong; never what was asked
messages                  Flight SQL's messages
server                    the calls themselves
databases, describing     which database is meant, and what a statement would return
statements                prepared statements and their parameters
metadata, server_info,    catalogs, tables, types, and what the gateway can do
type_info
shelf                     results and prepared statements that wait to be asked for
serving                   from start to stop
"""
