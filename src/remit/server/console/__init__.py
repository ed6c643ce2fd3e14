"""The console: HTML pages for people who operate and audit a root."""

from remit.server.console.application import PREFIX as PREFIX, Console as Console
