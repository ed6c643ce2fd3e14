"""Other people's MCP programs against Remit's MCP server, and through its gateway."""
