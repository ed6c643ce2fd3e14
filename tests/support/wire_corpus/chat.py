"""Chat Completions."""

from __future__ import annotations

from tests.support.wire_corpus.exchange import DONE, WireExchange, chunks

__all__ = ["CHAT"]

_USAGE = b'"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}'
_ASK = b'"stream":true,"stream_options":{"include_usage":true}'
_HEAD = b'"id":"chatcmpl-A1","object":"chat.completion.chunk","created":1,"model":"gpt-4o-mini"'
_LAST = b"{" + _HEAD + b',"choices":[],' + _USAGE + b"}"


def _answer(message: bytes, more: bytes = b"", finish: bytes = b'"stop"') -> bytes:
    return (
        b'{"id":"chatcmpl-A0","object":"chat.completion","created":1,"model":"gpt-4o-mini",'
        b'"choices":[{"index":0,"message":' + message + b',"finish_reason":' + finish + b"}],"
        + _USAGE + more + b"}"
    )  # fmt: skip


def _text(text: bytes, more: bytes = b"") -> bytes:
    return _answer(b'{"role":"assistant","content":' + text + b',"refusal":null}', more)


def _delta(delta: bytes, finish: bytes = b"null", more: bytes = b"", index: int = 0) -> bytes:
    return (
        b"{" + _HEAD + b',"choices":[{"index":%d,"delta":' % index + delta
        + b',"finish_reason":' + finish + b"}]" + more + b"}"
    )  # fmt: skip


def _whole(name: str, request: bytes, answer: bytes) -> WireExchange:
    return WireExchange(f"chat: {name}", "openai.chat", request, answer)


def _stream(
    name: str, request: bytes, answer: bytes, *, asks_usage: bool = True
) -> WireExchange:  # fmt: skip
    return WireExchange(
        f"chat: {name}", "openai.chat", request, answer, True, asks_usage=asks_usage
    )


_WHOLE = (
    _whole(
        "plain",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hello"}]}',
        _text(b'"hi"'),
    ),
    _whole(
        "white space of every kind, before and after",
        b'\r\n\t {\n  "model" :\t"gpt-4o-mini" ,\r\n  "messages" : [ \n { "role" : "user" , '
        b'"content" : "hello" } \t , {"role":"assistant","content":"a"},\n\n'
        b'{"content":"b","role":"user"} ] \r\n}\n\n ',
        b'\n{\n    "id": "chatcmpl-A0",\n    "object": "chat.completion",\n    "created": 1,\n'
        b'    "model": "gpt-4o-mini",\n    "choices": [\n        {\n            "index": 0,\n'
        b'            "message": {\n                "role": "assistant",\n'
        b'                "content": "hi"\n            },\n            "logprobs": null,\n'
        b'            "finish_reason": "stop"\n        }\n    ],\n    "usage": {\n'
        b'        "prompt_tokens": 11,\n        "completion_tokens": 7,\n'
        b'        "total_tokens": 18\n    }\n}\n',
    ),
    _whole(
        "messages first, model last",
        b'{"temperature":0.70,"messages":[{"content":"hello","role":"user"}],"top_p":1.0,'
        b'"model":"gpt-4o-mini"}',
        _text(b'"hi"', b',"system_fingerprint":null'),
    ),
    _whole(
        "a field that stands twice",
        b'{"model":"gpt-4o-mini","temperature":0.1,"messages":[{"role":"user","content":"a",'
        b'"content":"b"}],"temperature":0.2}',
        _text(b'"b"', b',"note":1,"note":2'),
    ),
    _whole(
        "unicode escapes",
        b'{"model":"gpt-4o-mini","mess\\u0061ges_note":"x","messages":[{"role":"us\\u0065r",'
        b'"content":"caf\\u00e9 \\ud83d\\ude00 \\u2028 \\/ \\b\\f \\u0000 end"}]}',
        _text(b'"caf\\u00e9 \\ud83d\\ude00 \\/ \\u2028"'),
    ),
    _whole(
        "the same not escaped",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":'
        + '"café 😀 \u2028 / \x7f"'.encode()
        + b"}]}",
        _text('"naïve 日本語 \u2029 \U0001f468\u200d\U0001f469"'.encode()),
    ),
    _whole(
        "lone surrogates",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"half \\ud83d of it, '
        b'\\uDE00 the other"}],"user":"\\ud800"}',
        _text(b'"\\ud83d and \\udc00\\ud800"'),
    ),
    _whole(
        "numbers that a float cannot hold",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"n"}],'
        b'"seed":9007199254740993,"x_big":123456789012345678901234567890,"x_small":1e-400,'
        b'"x_huge":1E+400,"x_digits":0.1000000000000000055511151231257827}',
        _text(b'"n"', b',"x_cost":0.10000000000000000555,"x_id":18446744073709551617'),
    ),
    _whole(
        "one in many spellings",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"n"}],"temperature":1.0,'
        b'"top_p":1,"max_completion_tokens":1000,"x_limit":1e3,"frequency_penalty":-0.0,"presence_penalty":-0,'
        b'"x":1.50e+0,"y":10E-1}',
        _text(b'"n"', b',"x":1.0,"y":1e0'),
    ),
    _whole(
        "fields that nobody knows",
        b'{"model":"gpt-4o-mini","x_new":{"deep":[[],{},[{"a":null}]]},"messages":[{"role":"user",'
        b'"content":"hello","x_tag":["t"],"name":"alice"}],"":"no name"}',
        _text(b'"hi"', b',"x_new":{"a":[1,{"b":null}]},"":[]'),
    ),
    _whole(
        "text in parts",
        b'{"model":"gpt-4o-mini","messages":[{"role":"developer","content":[{"type":"text","text":'
        b'"be brief"}]},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text",'
        b'"text":""},{"text":"b","type":"text"}]}]}',
        _text(b'"ab"'),
    ),
    _whole(
        "images",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":[{"type":"text","text":'
        b'"what?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo=",'
        b'"detail":"low"}},{"type":"image_url","image_url":{"url":"https://x.test/a.png?b=c&d"}}]}]}',
        _text(b'"a square"'),
    ),
    _whole(
        "files and audio",
        b'{"model":"gpt-4o-mini","modalities":["text","audio"],"audio":{"voice":"alloy","format":'
        b'"wav"},"messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf",'
        b'"file_data":"data:application/pdf;base64,JVBERi0="}},{"type":"input_audio","input_audio":'
        b'{"data":"UklGRg==","format":"wav"}}]},{"role":"assistant","audio":{"id":"audio_1"}},'
        b'{"role":"user","content":"again"}]}',
        _answer(
            b'{"role":"assistant","content":null,"audio":{"id":"audio_2","data":"UklGRg==",'
            b'"expires_at":1729018505,"transcript":"again"}}'
        ),
    ),
    _whole(
        "tool calls with odd arguments",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"go"},{"role":"assistant",'
        b'"content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f",'
        b'"arguments":" {\\n \\"a\\" : 1.0 , \\"a\\":2}"}},{"id":"call_2","type":"function",'
        b'"function":{"name":"g","arguments":""}},{"id":"call_3","type":"function","function":'
        b'{"name":"h","arguments":"{\\"cut\\": \\"of"}}]},{"role":"tool","tool_call_id":"call_1",'
        b'"content":"1"},{"role":"tool","tool_call_id":"call_2","content":[{"type":"text","text":'
        b'"2"}]},{"role":"tool","tool_call_id":"call_3","content":""}],"tools":[{"type":"function",'
        b'"function":{"name":"f","description":"F","parameters":{"type":"object","properties":{"a":'
        b'{"type":"number","minimum":1.0}},"required":["a"],"additionalProperties":false},'
        b'"strict":true}},{"function":{"name":"g"},"type":"function"}],"tool_choice":"auto",'
        b'"parallel_tool_calls":false}',
        _answer(
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"call_4","type":"function",'
            b'"function":{"name":"f","arguments":"{ \\"a\\":1.0,\\"b\\":\\"\\\\ud800\\" }"}},{"id":'
            b'"call_5","type":"function","function":{"name":"g","arguments":""}}]}',
            finish=b'"tool_calls"',
        ),
    ),
    _whole(
        "custom tools",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"go"},{"role":"assistant",'
        b'"tool_calls":[{"id":"call_1","type":"custom","custom":{"name":"sql","input":'
        b'"select 1;\\n-- \\"x\\""}}]},{"role":"tool","tool_call_id":"call_1","content":"1"}],'
        b'"tools":[{"type":"custom","custom":{"name":"sql","description":"runs SQL","format":'
        b'{"type":"grammar","grammar":{"syntax":"lark","definition":"start: /.+/"}}}}],'
        b'"tool_choice":{"type":"custom","custom":{"name":"sql"}}}',
        _answer(
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"call_2","type":"custom",'
            b'"custom":{"name":"sql","input":"select \'{not json\'"}}]}',
            finish=b'"tool_calls"',
        ),
    ),
    _whole(
        "functions of before tools",
        b'{"model":"gpt-4o-mini","functions":[{"name":"f","parameters":{}}],"function_call":{"name"'
        b':"f"},"messages":[{"role":"user","content":"go"},{"role":"assistant","content":null,'
        b'"function_call":{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":'
        b'"1"}]}',
        _answer(
            b'{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\\n}"}}',
            finish=b'"function_call"',
        ),
    ),
    _whole(
        "structured output",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"a book"}],"response_format":'
        b'{"type":"json_schema","json_schema":{"name":"book","strict":true,"schema":{"$schema":'
        b'"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"title":'
        b'{"type":"string"},"year":{"type":["integer","null"],"maximum":1e4}},"required":["title",'
        b'"year"],"additionalProperties":false}}}}',
        _text(b'"{\\"title\\":\\"A\\",\\"year\\":null}"'),
    ),
    _whole(
        "several choices with log probabilities",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"a"}],"n":3,"logprobs":true,'
        b'"top_logprobs":2,"logit_bias":{"50256":-100,"15339":1.5}}',
        b'{"id":"chatcmpl-A0","object":"chat.completion","created":1,"model":"gpt-4o-mini",'
        b'"choices":[{"index":2,"message":{"role":"assistant","content":"c"},"logprobs":{"content":'
        b'[{"token":"c","logprob":-0.00000012,"bytes":[99],"top_logprobs":[{"token":"c","logprob":'
        b'-1.2e-7,"bytes":[99]},{"token":"\\ud83d","logprob":-9999.0,"bytes":null}]}],"refusal":'
        b'null},"finish_reason":"stop"},{"index":0,"message":{"role":"assistant","content":"a"},'
        b'"logprobs":null,"finish_reason":"length"},{"index":1,"message":{"role":"assistant",'
        b'"content":null,"refusal":"I can\'t."},"finish_reason":"stop"}],' + _USAGE + b"}",
    ),
    _whole(
        "prediction, seed, stop, metadata, service tier",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"a"}],"prediction":{"type":'
        b'"content","content":[{"type":"text","text":"code"}]},"seed":-1,"stop":["\\n","###",""],'
        b'"metadata":{"k":"v","":""},"service_tier":"flex","store":false,"user":"u-1",'
        b'"safety_identifier":"s","prompt_cache_key":"p","verbosity":"low",'
        b'"reasoning_effort":"minimal"}',
        b'{"id":"chatcmpl-A0","object":"chat.completion","created":1,"model":"gpt-4o-mini-2024-07-18"'
        b',"choices":[{"index":0,"message":{"role":"assistant","content":"a","refusal":null,'
        b'"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,'
        b'"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":4,'
        b'"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":3,"audio_tokens":0,'
        b'"accepted_prediction_tokens":2,"rejected_prediction_tokens":1}},"service_tier":"flex",'
        b'"system_fingerprint":"fp_1"}',
    ),
    _whole(
        "web search with annotations",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"news?"}],"web_search_options"'
        b':{"search_context_size":"low","user_location":{"type":"approximate","approximate":'
        b'{"country":"DE"}}}}',
        _answer(
            b'{"role":"assistant","content":"News [1]","annotations":[{"type":"url_citation",'
            b'"url_citation":{"start_index":5,"end_index":8,"url":"https://x.test/?a=1\\u0026b=2",'
            b'"title":"T"}}]}'
        ),
    ),
    _whole(
        "a stop that is one text, and nulls for what is not set",
        b'{"model":"gpt-4o-mini","messages":[{"role":"system","content":"s"},{"role":"user",'
        b'"content":"a"}],"stop":"END","max_tokens":null,"temperature":null,"tools":null,'
        b'"stream":false,"stream_options":null}',
        _text(b'""'),
    ),
    _whole(
        "thinking of a compatible server",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"a"},{"role":"assistant",'
        b'"content":"b","reasoning_content":"because"},{"role":"user","content":"c"}],'
        b'"chat_template_kwargs":{"enable_thinking":true},"guided_json":{"type":"object"}}',
        _answer(
            b'{"role":"assistant","reasoning_content":"hm\\n","reasoning":"hm","content":"c",'
            b'"tool_calls":[]}',
            b',"prompt_logprobs":null,"kv_transfer_params":null',
        ),
    ),
)

_STREAMS = (
    _stream(
        "streamed",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hello"}],' + _ASK + b"}",
        chunks(
            _delta(b'{"role":"assistant","content":"","refusal":null}'),
            _delta(b'{"content":"he"}'),
            _delta(b'{"content":"llo \\ud83d\\ude00"}'),
            _delta(b"{}", b'"stop"'),
            _LAST,
        ),
    ),
    _stream(
        "streamed without asking for usage",
        b'{ "model":"gpt-4o-mini", "messages":[{"role":"user","content":"hello"}], "stream":true }',
        chunks(
            _delta(b'{"role":"assistant","content":""}'),
            _delta(b'{"content":"hello"}'),
            _delta(b"{}", b'"stop"'),
        ),
        asks_usage=False,
    ),
    _stream(
        "streamed with options but not for usage",
        b'{"stream_options":{"include_obfuscation" : false},"stream":true,"model":"gpt-4o-mini",'
        b'"messages":[{"role":"user","content":"hello"}]}',
        chunks(_delta(b'{"role":"assistant","content":"hello"}', b'"stop"')),
        asks_usage=False,
    ),
    _stream(
        "streamed in CRLF with comments, names, ids and odd spaces",
        b'{"model":"gpt-4o-mini",' + _ASK + b',"messages":[{"role":"user","content":"hello"}]}',
        b": OPENROUTER PROCESSING\r\n\r\n"
        + b"id: 1\r\ndata:" + _delta(b'{"role":"assistant","content":"h"}') + b"\r\n\r\n"
        + b"retry: 100\r\n\r\n"
        + b"data:   " + _delta(b'{"content":"i"}').replace(b",", b" , ", 2) + b"\r\n\r\n"
        + b"data: " + _delta(b"{}", b'"stop"') + b"\r\n\r\n"
        + b"data: " + _LAST + b"\r\n\r\ndata: [DONE]\r\n\r\n",
    ),
    _stream(
        "streamed, data over several lines and a byte order mark",
        b'{"model":"gpt-4o-mini",' + _ASK + b',"messages":[{"role":"user","content":"lines"}]}',
        b"\xef\xbb\xbfdata: {" + _HEAD + b',\ndata: "choices":[{"index":0,"delta":{"role":'
        b'"assistant","content":"hi"},\ndata: "finish_reason":"stop"}]}\n\n\n'
        b"data: " + _LAST + b"\n\n" + DONE,
    ),
    _stream(
        "streamed, several choices with log probabilities, one refused",
        b'{"model":"gpt-4o-mini","n":2,"logprobs":true,"messages":[{"role":"user","content":"a"}],'
        + _ASK + b"}",
        chunks(
            _delta(b'{"role":"assistant","content":""}', index=1),
            _delta(b'{"role":"assistant","content":null,"refusal":"I"}'),
            b"{" + _HEAD + b',"choices":[{"index":1,"delta":{"content":"b"},"logprobs":{"content":['
            b'{"token":"b","logprob":-1.0e-5,"bytes":[98],"top_logprobs":[]}],"refusal":null},'
            b'"finish_reason":null}]}',
            _delta(b'{"refusal":" can\'t"}'),
            _delta(b"{}", b'"length"', index=1),
            _delta(b"{}", b'"stop"'),
            _LAST,
        ),
    ),
    _stream(
        "streamed tool calls, two at a time",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"go"}],"tools":[{"type":'
        b'"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":'
        b'"required",' + _ASK + b"}",
        chunks(
            _delta(b'{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1",'
                   b'"type":"function","function":{"name":"f","arguments":""}}]}'),
            _delta(b'{"tool_calls":[{"index":0,"function":{"arguments":"{ \\"a"}}]}'),
            _delta(b'{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":'
                   b'"f","arguments":""}},{"index":0,"function":{"arguments":"\\": 1.0}"}}]}'),
            _delta(b'{"tool_calls":[{"index":1,"function":{"arguments":"{\\"cut"}}]}'),
            _delta(b"{}", b'"tool_calls"'),
            _LAST,
        ),
    ),
    _stream(
        "streamed custom tool call",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"go"}],"tools":[{"type":'
        b'"custom","custom":{"name":"sql"}}],' + _ASK + b"}",
        chunks(
            _delta(b'{"role":"assistant","tool_calls":[{"index":0,"id":"call_1","type":"custom",'
                   b'"custom":{"name":"sql","input":""}}]}'),
            _delta(b'{"tool_calls":[{"index":0,"custom":{"input":"select "}}]}'),
            _delta(b'{"tool_calls":[{"index":0,"custom":{"input":"1"}}]}'),
            _delta(b"{}", b'"tool_calls"'),
            _LAST,
        ),
    ),
    _stream(
        "streamed with thinking, unknown fields, obfuscation, annotations and audio",
        b'{"model":"gpt-4o-mini","messages":[{"role":"user","content":"a"}],' + _ASK + b"}",
        chunks(
            _delta(b'{"role":"assistant","reasoning_content":"h"}', more=b',"obfuscation":"aX9"'),
            _delta(b'{"reasoning_content":"m","x_new":{"list":["a"]}}', more=b',"x":null'),
            _delta(b'{"content":"a","annotations":[{"type":"url_citation","url_citation":{"url":'
                   b'"https://x.test"}}]}'),
            _delta(b'{"audio":{"id":"audio_1","transcript":"a"}}'),
            _delta(b'{"audio":{"data":"UklGRg=="}}'),
            b'{"x_event":"keep","choices":[]}',
            _delta(b"{}", b'"content_filter"'),
            _LAST,
        ),
    ),
)  # fmt: skip

CHAT = _WHOLE + _STREAMS
