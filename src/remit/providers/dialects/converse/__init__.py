"""Bedrock's Converse: requests and answers."""
