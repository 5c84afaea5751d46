"""A server on FastMCP, which speaks both eras: fastmcp_server.py PORT first|changed.

`changed` is its next release: `find_part` wants another argument.
"""

import sys
from typing import Annotated

from fastmcp import FastMCP
from pydantic import Field

port, release = int(sys.argv[1]), sys.argv[2]
server = FastMCP("parts", version="1.0.0" if release == "first" else "1.1.0")

Name = Annotated[str, Field(description="What the part is called.")]
Store = Annotated[str, Field(description="The store to look in.")]

if release == "first":

    @server.tool(description="Finds a part in the stores by its name.")
    def find_part(name: Name) -> str:
        return f"part {name}: shelf 7"

else:

    @server.tool(description="Finds a part in one store by its name.")
    def find_part(name: Name, store: Store) -> str:
        return f"part {name}: shelf 7 of {store}"


@server.tool(description="Counts the parts that are in the stores.")
def count_parts() -> int:
    return 42


server.run(transport="http", host="127.0.0.1", port=port, path="/mcp", show_banner=False, log_level="warning")
