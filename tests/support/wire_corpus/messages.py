"""Anthropic's Messages."""

from __future__ import annotations

from tests.support.wire_corpus.exchange import WireExchange, events

__all__ = ["MESSAGES"]

_MODEL = b'"model":"claude-sonnet-4-5"'
_OPEN = b"{" + _MODEL + b',"max_tokens":64'
_ASK = _OPEN + b',"messages":[{"role":"user","content":"hello"}]'
_USAGE = (
    b'"usage":{"input_tokens":11,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,'
    b'"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},'
    b'"output_tokens":7,"service_tier":"standard"}'
)
_PING = b'{"type":"ping"}'
_STOP = b'{"type":"message_stop"}'


def _answer(content: bytes, stop: bytes = b'"end_turn"', more: bytes = b"") -> bytes:
    return (
        b'{"id":"msg_01","type":"message","role":"assistant",' + _MODEL + b',"content":[' + content
        + b'],"stop_reason":' + stop + b',"stop_sequence":null,' + _USAGE + more + b"}"
    )  # fmt: skip


def _text(text: bytes, more: bytes = b"") -> bytes:
    return b'{"type":"text","text":' + text + more + b"}"


def _start(more: bytes = b"") -> bytes:
    return (
        b'{"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant",'
        + _MODEL + b',"content":[],"stop_reason":null,"stop_sequence":null,"usage":{'
        b'"input_tokens":11,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,'
        b'"output_tokens":1}' + more + b"}}"
    )  # fmt: skip


def _block(index: int, start: bytes, *deltas: bytes) -> tuple[bytes, ...]:
    at = b'"index":%d,' % index
    return (
        b'{"type":"content_block_start",' + at + b'"content_block":' + start + b"}",
        *(b'{"type":"content_block_delta",' + at + b'"delta":' + delta + b"}" for delta in deltas),
        b'{"type":"content_block_stop","index":%d}' % index,
    )


def _finish(stop: bytes = b'"end_turn"', more: bytes = b"") -> bytes:
    return (
        b'{"type":"message_delta","delta":{"stop_reason":' + stop + b',"stop_sequence":null' + more
        + b'},"usage":{"output_tokens":7}}'
    )  # fmt: skip


def _said(text: bytes) -> bytes:
    return b'{"type":"text_delta","text":' + text + b"}"


def _whole(
    name: str, request: bytes, answer: bytes, *headers: tuple[str, str]
) -> WireExchange:  # fmt: skip
    return WireExchange(f"messages: {name}", "anthropic.messages", request, answer, headers=headers)


def _stream(
    name: str, request: bytes, answer: bytes, *headers: tuple[str, str]
) -> WireExchange:  # fmt: skip
    return WireExchange(
        f"messages: {name}", "anthropic.messages", request, answer, True, headers=headers
    )


_WHOLE = (
    _whole("plain", _ASK + b"}", _answer(_text(b'"hi"'))),
    _whole(
        "white space of every kind, model last",
        b'\t{\r\n "max_tokens" : 64 ,\n "messages":[\n\n{ "content":"a" , "role":"user" }  ,\t'
        b'{"role":"assistant","content":"b"} , {"role":"user","content":"c"}\r\n] , "model" :'
        b' "claude-sonnet-4-5" }\n',
        b'{\n  "content": [ {"text": "hi", "type": "text"} ],\n  "id": "msg_01",\n  "model": '
        b'"claude-sonnet-4-5",\n  "role": "assistant",\n  "stop_reason": "end_turn",\n'
        b'  "stop_sequence": null,\n  "type": "message",\n  "usage": {"input_tokens": 11, '
        b'"output_tokens": 7}\n}\n',
    ),
    _whole(
        "escapes and lone surrogates",
        _OPEN + b',"system":"caf\\u00e9 \\/ \\ud800","messages":[{"role":'
        b'"us\\u0065r","content":"\\ud83d\\ude00 \\u0000 \\u2028 \\udfff"}]}',
        _answer(_text(b'"\\ud83d and \\ud83d\\ude00 \\/"')),
    ),
    _whole(
        "the same not escaped",
        _OPEN + ',"system":"日本","messages":[{"role":"user","content":'
        '"é\u2028😀\x7f"}]}'.encode(),
        _answer(_text('"naïve 日本語 \U0001f468\u200d\U0001f469"'.encode())),
    ),
    _whole(
        "numbers, fields that stand twice, fields that nobody knows",
        _OPEN + b',"temperature":1.0,"top_p":1e0,"top_k":40,"temperature":'
        b'0.50,"x_new":[9007199254740993,-0.0,1E400,{}],"":1,"messages":[{"role":"user","content":'
        b'"a","x_tag":1,"x_tag":1.0}]}',
        _answer(_text(b'"b"'), more=b',"x_new":[1.0,1,1e3,12345678901234567890123],"x_new":null'),
    ),
    _whole(
        "system in parts with cache control",
        _OPEN + b',"system":[{"type":"text","text":"You are"},{"type":"text",'
        b'"text":"long","cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages":[{"role":"user"'
        b',"content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}',
        b'{"id":"msg_01","type":"message","role":"assistant",' + _MODEL + b',"content":[{"type":'
        b'"text","text":"b"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":'
        b'3,"cache_creation_input_tokens":100,"cache_read_input_tokens":2000,"cache_creation":{'
        b'"ephemeral_5m_input_tokens":40,"ephemeral_1h_input_tokens":60},"output_tokens":7,'
        b'"service_tier":"standard"}}',
    ),
    _whole(
        "images",
        _OPEN + b',"messages":[{"role":"user","content":[{"type":"image",'
        b'"source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}},{"type":"image"'
        b',"source":{"type":"url","url":"https://x.test/a.png?b=c&d"}},{"text":"what?","type":'
        b'"text"}]}]}',
        _answer(_text(b'"a square"')),
    ),
    _whole(
        "documents and citations",
        _OPEN + b',"messages":[{"role":"user","content":[{"type":"document",'
        b'"source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="},"title":"A",'
        b'"context":null,"citations":{"enabled":true}},{"type":"document","source":{"type":"text",'
        b'"media_type":"text/plain","data":"grass is green"},"citations":{"enabled":true}},{"type":'
        b'"document","source":{"type":"content","content":[{"type":"text","text":"x"}]}},{"type":'
        b'"text","text":"colour?"}]}]}',
        _answer(
            _text(b'"It is "') + b"," + _text(
                b'"green"',
                b',"citations":[{"type":"char_location","cited_text":"grass is green",'
                b'"document_index":1,"document_title":null,"start_char_index":0,"end_char_index":14,'
                b'"file_id":null},{"type":"page_location","cited_text":"\\u00a7","document_index":0,'
                b'"document_title":"A","start_page_number":1,"end_page_number":2}]')
        ),
    ),
    _whole(
        "search results and a file by its id",
        _OPEN + b',"messages":[{"role":"user","content":[{"type":'
        b'"search_result","source":"https://x.test","title":"T","content":[{"type":"text","text":'
        b'"x"}],"citations":{"enabled":true}},{"type":"container_upload","file_id":"file_1"},'
        b'{"type":"text","text":"?"}]}]}',
        _answer(_text(b'"x"', b',"citations":[{"type":"search_result_location","cited_text":"x",'
                b'"source":"https://x.test","title":"T","search_result_index":0,'
                b'"start_block_index":0,"end_block_index":1}]')),
        ("anthropic-beta", "files-api-2025-04-14,search-results-2025-06-09"),
    ),
    _whole(
        "tools with odd input",
        _OPEN + b',"messages":[{"role":"user","content":"go"},{"role":'
        b'"assistant","content":[{"type":"text","text":"yes"},{"type":"tool_use","id":"toolu_1",'
        b'"name":"f","input":{ "a" : 1.0 , "a":2, "big":12345678901234567890 }},{"type":"tool_use",'
        b'"id":"toolu_2","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result",'
        b'"tool_use_id":"toolu_1","content":"1"},{"type":"tool_result","tool_use_id":"toolu_2",'
        b'"is_error":true,"content":[{"type":"text","text":"no"},{"type":"image","source":{"type":'
        b'"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]}]}],"tools":[{"name":"f",'
        b'"description":"F","input_schema":{"type":"object","properties":{"a":{"type":"number",'
        b'"minimum":1.0}},"required":["a"]},"cache_control":{"type":"ephemeral"}}],"tool_choice":'
        b'{"type":"any","disable_parallel_tool_use":true}}',
        _answer(
            b'{"type":"tool_use","id":"toolu_3","name":"f","input":{"a": 1.0,"b":"\\ud800",'
            b'"c":123456789012345678901}}',
            b'"tool_use"',
        ),
    ),
    _whole(
        "thinking with signatures, redacted thinking",
        b'{' + _MODEL + b',"max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":1024},'
        b'"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":'
        b'"thinking","thinking":"hm\\n","signature":"EqoBCkgIARABGAIiQL8/+=="},{"type":'
        b'"redacted_thinking","data":"EmwKAhgBEgy3va3/+="},{"type":"text","text":"b"}]},{"role":'
        b'"user","content":"c"}]}',
        _answer(
            b'{"type":"thinking","thinking":"","signature":"EqoB/+8="},{"type":"redacted_thinking",'
            b'"data":"Emw="},' + _text(b'"d"', b',"citations":null')
        ),
        ("anthropic-beta", "interleaved-thinking-2025-05-14"),
    ),
    _whole(
        "tools that the provider runs",
        _OPEN + b',"messages":[{"role":"user","content":"news"}],"tools":['
        b'{"type":"web_search_20250305","name":"web_search","max_uses":1,"user_location":{"type":'
        b'"approximate","country":"DE"}},{"type":"bash_20250124","name":"bash"},{"type":'
        b'"text_editor_20250728","name":"str_replace_based_edit_tool","max_characters":1000}]}',
        _answer(
            b'{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":'
            b'"news"}},{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":['
            b'{"type":"web_search_result","url":"https://x.test","title":"T","encrypted_content":'
            b'"Er4=","page_age":null}]},' + _text(
                b'"none"',
                b',"citations":[{"type":"web_search_result_location","cited_text":"n","url":'
                b'"https://x.test","title":"T","encrypted_index":"Eo8="}]'),
            b'"pause_turn"',
        ),
    ),
    _whole(
        "structured output beside tools",
        _OPEN + b',"messages":[{"role":"user","content":"a book"}],'
        b'"output_format":{"type":"json_schema","schema":{"type":"object","properties":{"year":'
        b'{"type":"integer","maximum":1e4}},"required":["year"],"additionalProperties":false}},'
        b'"tools":[{"name":"f","input_schema":{"type":"object"},"strict":true}]}',
        _answer(_text(b'"{\\"year\\":1e3}"')),
        ("anthropic-beta", "structured-outputs-2025-11-13"),
    ),
    _whole(
        "stop sequences, metadata, service tier, an answer begun",
        _OPEN + b',"stop_sequences":["\\n\\nHuman:","###"],"metadata":'
        b'{"user_id":"u-1"},"service_tier":"auto","stream":false,"messages":[{"role":"user",'
        b'"content":"a"},{"role":"assistant","content":"The answer is ("}]}',
        b'{"id":"msg_01","type":"message","role":"assistant",' + _MODEL + b',"content":[{"type":'
        b'"text","text":"A"}],"stop_reason":"stop_sequence","stop_sequence":"###",' + _USAGE + b"}",
    ),
    _whole(
        "a refusal, an empty answer, containers",
        _OPEN + b',"container":"container_1","context_management":{"edits":['
        b'{"type":"clear_tool_uses_20250919"}]},"mcp_servers":[{"type":"url","url":"https://m.test",'
        b'"name":"m","authorization_token":null}],"messages":[{"role":"user","content":"a"}]}',
        _answer(
            b"", b'"refusal"',
            b',"container":{"id":"container_1","expires_at":"2026-01-01T00:00:00Z"},'
            b'"context_management":{"applied_edits":[]}',
        ),
        ("anthropic-beta", "mcp-client-2025-04-04,context-management-2025-06-27"),
    ),
)  # fmt: skip

_STREAMS = (
    _stream(
        "streamed",
        _ASK + b',"stream":true}',
        events(_start(), *_block(0, _text(b'""'), _said(b'"hi"'), _said(b'" \\ud83d\\ude00"')),
               _finish(), _STOP),
    ),
    _stream(
        "streamed with pings, comments, CRLF and odd spaces",
        b'{ "stream":true, ' + _ASK[1:] + b" }",
        b": hello\r\n\r\n"
        + events(_start(), _PING, *_block(0, _text(b'""'), _said(b'"h"'))).replace(b"\n", b"\r\n")
        + b"event:ping\r\ndata:{\"type\": \"ping\"}\r\n\r\n"
        + events(_finish(), _STOP).replace(b"\n", b"\r\n"),
    ),
    _stream(
        "streamed thinking with its signature, redacted thinking",
        b'{' + _MODEL + b',"max_tokens":4096,"stream":true,"thinking":{"type":"enabled",'
        b'"budget_tokens":1024},"messages":[{"role":"user","content":"a"}]}',
        events(
            _start(),
            *_block(0, b'{"type":"thinking","thinking":"","signature":""}',
                    b'{"type":"thinking_delta","thinking":"h"}',
                    b'{"type":"thinking_delta","thinking":"m\\n"}',
                    b'{"type":"signature_delta","signature":"EqoBCkgI/+=="}'),
            *_block(1, b'{"type":"redacted_thinking","data":"Emw="}'),
            _PING,
            *_block(2, _text(b'""'), _said(b'"b"')),
            _finish(), _STOP,
        ),
    ),
    _stream(
        "streamed tool calls with odd input",
        _OPEN + b',"stream":true,"messages":[{"role":"user","content":"go"}],'
        b'"tools":[{"name":"f","input_schema":{"type":"object"}}]}',
        events(
            _start(),
            *_block(0, _text(b'""'), _said(b'"yes"')),
            *_block(1, b'{"type":"tool_use","id":"toolu_1","name":"f","input":{}}',
                    b'{"type":"input_json_delta","partial_json":""}',
                    b'{"type":"input_json_delta","partial_json":"{ \\"a\\": 1"}',
                    b'{"type":"input_json_delta","partial_json":".0, \\"b\\":\\"\\\\ud800\\"}"}'),
            *_block(2, b'{"type":"tool_use","id":"toolu_2","name":"f","input":{}}'),
            _finish(b'"tool_use"'), _STOP,
        ),
    ),
    _stream(
        "streamed citations",
        _OPEN + b',"stream":true,"messages":[{"role":"user","content":['
        b'{"type":"document","source":{"type":"text","media_type":"text/plain","data":"grass"},'
        b'"citations":{"enabled":true}},{"type":"text","text":"?"}]}]}',
        events(
            _start(),
            *_block(0, b'{"type":"text","text":"","citations":[]}',
                    b'{"type":"citations_delta","citation":{"type":"char_location","cited_text":'
                    b'"grass","document_index":0,"document_title":null,"start_char_index":0,'
                    b'"end_char_index":5}}',
                    _said(b'"grass"')),
            _finish(), _STOP,
        ),
    ),
    _stream(
        "streamed search by the provider",
        _OPEN + b',"stream":true,"messages":[{"role":"user","content":"a"}],'
        b'"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5}]}',
        events(
            _start(),
            *_block(0, b'{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":'
                    b'{}}', b'{"type":"input_json_delta","partial_json":"{\\"query\\":\\"a\\"}"}'),
            *_block(1, b'{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":'
                    b'{"type":"web_search_tool_result_error","error_code":"max_uses_exceeded"}}'),
            *_block(2, _text(b'""'), _said(b'"none"')),
            _finish(), _STOP,
        ),
    ),
    _stream(
        "streamed, with events, blocks, deltas and fields that nobody knows",
        _ASK + b',"stream":true,"x_new":{"a":[1.0,1]}}',
        events(
            _start(b',"x_new":{"a":1.0}'),
            b'{"type":"x_event","deep":{"a":[null]}}',
            *_block(0, b'{"type":"x_block","x":"","keep":1.0}',
                    b'{"type":"x_delta","x":"a","more":[1]}', b'{"type":"x_delta","x":"b"}'),
            *_block(1, b'{"type":"text","text":"","x_tag":null}',
                    b'{"type":"text_delta","text":"hi","x_tag":1e3}'),
            _finish(b'"x_reason"', b',"x_new":{"b":2}'), _STOP,
        ),
    ),
    _stream(
        "streamed refusal without a block",
        b'{"stream":true,' + _MODEL + b',"max_tokens":1,"messages":[{"role":"user","content":[]}]}',
        events(_start(), _PING, _finish(b'"refusal"'), _STOP),
    ),
)  # fmt: skip

MESSAGES = _WHOLE + _STREAMS
