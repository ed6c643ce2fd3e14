"""The Responses API."""

from __future__ import annotations

from tests.support.wire_corpus.exchange import WireExchange, events

__all__ = ["RESPONSES"]

_USAGE = (
    b'"usage":{"input_tokens":11,"input_tokens_details":{"cached_tokens":2},"output_tokens":7,'
    b'"output_tokens_details":{"reasoning_tokens":3},"total_tokens":18}'
)
_HEAD = b'"id":"resp_0a","object":"response","created_at":1741476542'
_MODEL = b'"model":"gpt-4o-mini"'
_MESSAGE = b'"type":"message","id":"msg_1","role":"assistant"'


def _answer(output: bytes, more: bytes = b"", status: bytes = b"completed") -> bytes:
    return (
        b"{" + _HEAD + b',"status":"' + status + b'","error":null,"incomplete_details":null,'
        + _MODEL + b',"output":[' + output + b"]," + _USAGE + more + b"}"
    )  # fmt: skip


def _text(text: bytes, annotations: bytes = b"") -> bytes:
    return (
        b"{" + _MESSAGE + b',"status":"completed","content":[{"type":"output_text","annotations":['
        + annotations + b'],"logprobs":[],"text":' + text + b"}]}"
    )  # fmt: skip


def _begin(more: bytes = b"") -> tuple[bytes, bytes]:
    response = (
        b'"sequence_number":%d,"response":{' + _HEAD + b',"status":"in_progress","error":null,'
        + _MODEL + b',"output":[],"usage":null' + more.replace(b"%", b"%%") + b"}}"
    )  # fmt: skip
    return (
        b'{"type":"response.created",' + response % 0,
        b'{"type":"response.in_progress",' + response % 1,
    )


def _end(sequence: int, response: bytes, kind: bytes = b"response.completed") -> bytes:
    return b'{"type":"' + kind + b'","sequence_number":%d,"response":' % sequence + response + b"}"


def _spoken(text: bytes, *, at: int = 0) -> tuple[bytes, ...]:
    """The events of one message that says ``text`` (JSON) in one delta."""
    where = b'"item_id":"msg_1","output_index":%d,"content_index":0' % at
    part = b'{"type":"output_text","annotations":[],"logprobs":[],"text":'
    item = _text(text)
    return (
        b'{"type":"response.output_item.added","sequence_number":2,"output_index":%d,"item":{' % at
        + _MESSAGE + b',"status":"in_progress","content":[]}}',
        b'{"type":"response.content_part.added","sequence_number":3,' + where
        + b',"part":' + part + b'""}}',
        b'{"type":"response.output_text.delta","sequence_number":4,' + where
        + b',"delta":' + text + b',"logprobs":[],"obfuscation":"Zk3"}',
        b'{"type":"response.output_text.done","sequence_number":5,' + where
        + b',"text":' + text + b',"logprobs":[]}',
        b'{"type":"response.content_part.done","sequence_number":6,' + where
        + b',"part":' + part + text + b"}}",
        b'{"type":"response.output_item.done","sequence_number":7,"output_index":%d,"item":' % at
        + item + b"}",
    )  # fmt: skip


def _whole(name: str, request: bytes, answer: bytes) -> WireExchange:
    return WireExchange(f"responses: {name}", "openai.responses", request, answer)


def _stream(name: str, request: bytes, answer: bytes) -> WireExchange:
    return WireExchange(f"responses: {name}", "openai.responses", request, answer, True)


_WHOLE = (
    _whole("a text", b'{"model":"gpt-4o-mini","input":"hello"}', _answer(_text(b'"hi"'))),
    _whole(
        "a text with escapes, between white space",
        b'\n{\t"input" : "caf\\u00e9 \\ud83d\\ude00 \\ud800 \\/" , "model" : "gpt-4o-mini"\r\n}  ',
        b'{\n  "id": "resp_0a",\n  "object": "response",\n  "status": "completed",\n  "output": [\n'
        b'    {\n      "type": "message",\n      "id": "msg_1",\n      "role": "assistant",\n'
        b'      "content": [\n        {"type": "output_text", "text": "\\ud800 \\/", '
        b'"annotations": []}\n      ]\n    }\n  ],\n  "usage": {"input_tokens": 11, '
        b'"output_tokens": 7, "total_tokens": 18}\n}\n',
    ),
    _whole(
        "messages short and long, with instructions",
        b'{"instructions":"be  brief\\n","model":"gpt-4o-mini","input":[{"role":"user","content":'
        b'"a"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"b",'
        b'"annotations":[],"logprobs":[]}],"id":"msg_0","status":"completed"}, {"role":"developer",'
        b'"content":[{"type":"input_text","text":"c"}]} ,\n{"role":"user","content":[]}]}',
        _answer(_text(b'"d"')),
    ),
    _whole(
        "numbers and fields that stand twice or that nobody knows",
        b'{"model":"gpt-4o-mini","input":[{"role":"user","content":"a","x":1,"x":2}],"top_p":1.0,'
        b'"temperature":1e0,"max_output_tokens":4096,"max_tool_calls":1,"x_new":[9007199254740993,'
        b'-0.0,1E400,[]],"metadata":{"a":"b"},"x_new":{}}',
        _answer(_text(b'"b"'), b',"x_new":[1.0,1,1e3,12345678901234567890123]'),
    ),
    _whole(
        "images and files",
        b'{"model":"gpt-4o-mini","input":[{"role":"user","content":[{"type":"input_text","text":'
        b'"what?"},{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo=","detail":'
        b'"auto"},{"type":"input_image","file_id":"file-1","detail":"low"},{"type":"input_file",'
        b'"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="},{"type":'
        b'"input_file","file_url":"https://x.test/a.pdf"}]}]}',
        _answer(
            _text(
                b'"see a.pdf"',
                b'{"type":"file_citation","index":4,"file_id":"file-1","filename":"a.pdf"},{"type":'
                b'"url_citation","start_index":0,"end_index":3,"url":"https://x.test","title":"X"}',
            )
        ),
    ),
    _whole(
        "function calls and their outputs",
        b'{"model":"gpt-4o-mini","input":[{"role":"user","content":"go"},{"type":"function_call",'
        b'"id":"fc_1","call_id":"call_1","name":"f","arguments":"{ \\"a\\":1.0 }"},{"type":'
        b'"function_call","call_id":"call_2","name":"f","arguments":"{\\"cut"},{"type":'
        b'"function_call_output","call_id":"call_1","output":"1"},{"type":"function_call_output",'
        b'"call_id":"call_2","output":[{"type":"input_text","text":"2"},{"type":"input_image",'
        b'"image_url":"data:image/png;base64,iVBORw0KGgo="}]}],"tools":[{"type":"function","name":'
        b'"f","description":null,"parameters":{"type":"object","properties":{"a":{"type":"number",'
        b'"minimum":1.0}}},"strict":false}],"tool_choice":{"type":"function","name":"f"},'
        b'"parallel_tool_calls":false}',
        _answer(
            b'{"type":"function_call","id":"fc_2","call_id":"call_3","name":"f","arguments":'
            b'"{\\n\\"a\\":1.0}","status":"completed"}'
        ),
    ),
    _whole(
        "custom tools with a grammar",
        b'{"model":"gpt-4o-mini","input":[{"role":"user","content":"go"},{"type":"custom_tool_call",'
        b'"call_id":"call_1","name":"sql","input":"select 1;\\n-- \\"x"},{"type":'
        b'"custom_tool_call_output","call_id":"call_1","output":"1"}],"tools":[{"type":"custom",'
        b'"name":"sql","format":{"type":"grammar","syntax":"regex","definition":"^[a-z\\\\s]+$"}}]}',
        _answer(
            b'{"type":"custom_tool_call","id":"ctc_1","call_id":"call_2","name":"sql","input":'
            b'"{not json","status":"completed"}'
        ),
    ),
    _whole(
        "reasoning, encrypted, kept nowhere",
        b'{"model":"gpt-5-mini","store":false,"include":["reasoning.encrypted_content"],"reasoning":'
        b'{"effort":"low","summary":"auto"},"input":[{"role":"user","content":"a"},{"id":"rs_1",'
        b'"type":"reasoning","summary":[],"encrypted_content":"gAAAAAB+/=="},{"type":"reasoning",'
        b'"id":"rs_2","summary":[{"type":"summary_text","text":"**So**"}],"content":null},{"role":'
        b'"assistant","content":"b"},{"role":"user","content":"c"}]}',
        _answer(
            b'{"id":"rs_3","type":"reasoning","summary":[{"type":"summary_text","text":"**Hm**\\n"}],'
            b'"encrypted_content":"gAAAAAC/+=","status":null},' + _text(b'"d"'),
            b',"reasoning":{"effort":"low","summary":"detailed"},"store":false',
        ),
    ),
    _whole(
        "structured output beside tools",
        b'{"model":"gpt-4o-mini","input":"a book","text":{"verbosity":"low","format":{"type":'
        b'"json_schema","name":"book","strict":true,"schema":{"type":"object","properties":{"year":'
        b'{"type":"integer","maximum":1e4}},"required":["year"],"additionalProperties":false}}},'
        b'"tools":[{"type":"function","name":"f","parameters":{},"strict":true}]}',
        _answer(_text(b'"{\\"year\\":1e3}"')),
    ),
    _whole(
        "tools that the provider runs",
        b'{"model":"gpt-4o-mini","input":"news","tools":[{"type":"web_search_preview",'
        b'"search_context_size":"low"},{"type":"code_interpreter","container":{"type":"auto"}},'
        b'{"type":"mcp","server_label":"m","server_url":"https://m.test","require_approval":"never"}'
        b'],"include":["web_search_call.action.sources"]}',
        _answer(
            b'{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search",'
            b'"query":"news","sources":[]}},{"type":"mcp_list_tools","id":"mcpl_1","server_label":'
            b'"m","tools":[]},{"type":"mcp_call","id":"mcp_1","name":"x","arguments":"{}","output":'
            b'null,"error":"refused","server_label":"m"},{"type":"x_new_call","id":"n_1","deep":'
            b'{"a":[null]}},' + _text(b'"none"')
        ),
    ),
    _whole(
        "a refusal, stopped early",
        b'{"model":"gpt-4o-mini","input":"a","max_output_tokens":16,"service_tier":"default",'
        b'"truncation":"auto","top_logprobs":2,"prompt_cache_key":"k","safety_identifier":"s"}',
        b"{" + _HEAD + b',"status":"incomplete","error":null,"incomplete_details":{"reason":'
        b'"max_output_tokens"},' + _MODEL + b',"output":[{' + _MESSAGE + b',"status":"incomplete",'
        b'"content":[{"type":"refusal","refusal":"I can\'t"}]}],' + _USAGE
        + b',"service_tier":"default"}',
    ),
    _whole(
        "log probabilities",
        b'{"include":["message.output_text.logprobs"],"top_logprobs":1,"model":"gpt-4o-mini","input"'
        b':[{"type":"message","role":"user","content":"a"}]}',
        _answer(
            b"{" + _MESSAGE + b',"content":[{"type":"output_text","text":"b","annotations":[],'
            b'"logprobs":[{"token":"b","bytes":[98],"logprob":-1.0E-7,"top_logprobs":[{"token":"b",'
            b'"logprob":-0.0000001,"bytes":[98]}]}]}]}'
        ),
    ),
)  # fmt: skip

_STREAMS = (
    _stream(
        "streamed",
        b'{"model":"gpt-4o-mini","input":"hello","stream":true}',
        events(*_begin(), *_spoken(b'"hi \\ud83d\\ude00"'),
               _end(8, _answer(_text(b'"hi \\ud83d\\ude00"')))),
    ),
    _stream(
        "streamed in CRLF, with comments and data before the name",
        b'{ "stream" : true , "model":"gpt-4o-mini", "input":[ {"role":"user","content":"hi"} ] }',
        b": hello\r\n\r\n"
        + events(*_begin(), *_spoken(b'"hi"')).replace(b"\n", b"\r\n")
        + b"data: " + _end(8, _answer(_text(b'"hi"'))) + b"\r\nevent: response.completed\r\n\r\n",
    ),
    _stream(
        "streamed function call",
        b'{"model":"gpt-4o-mini","input":"go","stream":true,"tools":[{"type":"function","name":"f",'
        b'"parameters":{"type":"object"},"strict":true}],"stream_options":'
        b'{"include_obfuscation":false}}',
        events(
            *_begin(),
            b'{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":'
            b'{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"",'
            b'"status":"in_progress"}}',
            b'{"type":"response.function_call_arguments.delta","sequence_number":3,"item_id":"fc_1",'
            b'"output_index":0,"delta":"{ \\"a\\""}',
            b'{"type":"response.function_call_arguments.delta","sequence_number":4,"item_id":"fc_1",'
            b'"output_index":0,"delta":": 1.0}"}',
            b'{"type":"response.function_call_arguments.done","sequence_number":5,"item_id":"fc_1",'
            b'"output_index":0,"arguments":"{ \\"a\\": 1.0}"}',
            b'{"type":"response.output_item.done","sequence_number":6,"output_index":0,"item":'
            b'{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":'
            b'"{ \\"a\\": 1.0}","status":"completed"}}',
            _end(7, _answer(b'{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f",'
                            b'"arguments":"{ \\"a\\": 1.0}","status":"completed"}')),
        ),
    ),
    _stream(
        "streamed reasoning with its summary and an event that nobody knows",
        b'{"model":"gpt-5-mini","input":"a","stream":true,"store":false,"include":'
        b'["reasoning.encrypted_content"],"reasoning":{"summary":"auto"}}',
        events(
            *_begin(b',"reasoning":{"effort":"medium","summary":"detailed"}'),
            b'{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":'
            b'{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"}}',
            b'{"type":"response.reasoning_summary_part.added","sequence_number":3,"item_id":"rs_1",'
            b'"output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}',
            b'{"type":"response.reasoning_summary_text.delta","sequence_number":4,"item_id":"rs_1",'
            b'"output_index":0,"summary_index":0,"delta":"**Hm**"}',
            b'{"type":"response.x_new.delta","sequence_number":5,"deep":{"a":[null,1.0]}}',
            b'{"type":"response.reasoning_summary_text.done","sequence_number":6,"item_id":"rs_1",'
            b'"output_index":0,"summary_index":0,"text":"**Hm**"}',
            b'{"type":"response.reasoning_summary_part.done","sequence_number":7,"item_id":"rs_1",'
            b'"output_index":0,"summary_index":0,"part":{"type":"summary_text","text":"**Hm**"}}',
            b'{"type":"response.output_item.done","sequence_number":8,"output_index":0,"item":'
            b'{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"**Hm**"}],'
            b'"encrypted_content":"gAAAAAB/+="}}',
            *_spoken(b'"b"', at=1),
            _end(15, _answer(
                b'{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"**Hm**"}'
                b'],"encrypted_content":"gAAAAAB/+="},' + _text(b'"b"'))),
        ),
    ),
    _stream(
        "streamed custom tool call and a refusal, stopped early",
        b'{"stream":true,"model":"gpt-4o-mini","input":"a","tools":[{"type":"custom","name":"sql"}]}',
        events(
            *_begin(),
            b'{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":'
            b'{"type":"custom_tool_call","id":"ctc_1","call_id":"call_1","name":"sql","input":"",'
            b'"status":"in_progress"}}',
            b'{"type":"response.custom_tool_call_input.delta","sequence_number":3,"item_id":"ctc_1",'
            b'"output_index":0,"delta":"select \\"1"}',
            b'{"type":"response.custom_tool_call_input.done","sequence_number":4,"item_id":"ctc_1",'
            b'"output_index":0,"input":"select \\"1"}',
            b'{"type":"response.output_item.done","sequence_number":5,"output_index":0,"item":'
            b'{"type":"custom_tool_call","id":"ctc_1","call_id":"call_1","name":"sql","input":'
            b'"select \\"1","status":"completed"}}',
            b'{"type":"response.output_item.added","sequence_number":6,"output_index":1,"item":{'
            + _MESSAGE + b',"status":"in_progress","content":[]}}',
            b'{"type":"response.content_part.added","sequence_number":7,"item_id":"msg_1",'
            b'"output_index":1,"content_index":0,"part":{"type":"refusal","refusal":""}}',
            b'{"type":"response.refusal.delta","sequence_number":8,"item_id":"msg_1","output_index":'
            b'1,"content_index":0,"delta":"I can\'t"}',
            _end(9, b"{" + _HEAD + b',"status":"incomplete","error":null,"incomplete_details":'
                 b'{"reason":"content_filter"},' + _MODEL + b',"output":[{"type":'
                 b'"custom_tool_call","id":"ctc_1","call_id":"call_1","name":"sql",'
                 b'"input":"select \\"1","status":"completed"},{' + _MESSAGE
                 + b',"status":"incomplete","content":[{"type":"refusal","refusal":"I can\'t"}]}],'
                 + _USAGE + b"}", b"response.incomplete"),
        ),
    ),
)  # fmt: skip

RESPONSES = _WHOLE + _STREAMS
