#!/usr/bin/env python3
"""Writes chat_golden.jsonl: conversations with the ids and assistant masks of transformers.

  make_chat_golden.py TOKENIZER_JSON > chat_golden.jsonl

TOKENIZER_JSON is the tokenizer of ChatMessagesTest, which writes it with STOKER_WRITE_TOKENIZER=FILE.
"""
import json
import sys

from jinja2 import TemplateError
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

# The published templates, with {% generation %} around what the assistant writes.
TEMPLATES = {
    "chatml": (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}"
        "{% if message['role'] == 'assistant' %}{% generation %}{{message['content'] + '<|im_end|>'}}"
        "{% endgeneration %}{% else %}{{message['content'] + '<|im_end|>'}}{% endif %}{{'\n'}}{% endfor %}"
    ),
    "llama3": (
        "{% for message in messages %}{% if loop.index0 == 0 %}{{bos_token}}{% endif %}"
        "{{'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'}}"
        "{% if message['role'] == 'assistant' %}{% generation %}{{message['content'] | trim + '<|eot_id|>'}}"
        "{% endgeneration %}{% else %}{{message['content'] | trim + '<|eot_id|>'}}{% endif %}{% endfor %}"
    ),
    # Mistral-Nemo-Instruct-2407, without its branches for tools.
    "mistral": (
        "{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}"
        "{% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% endif %}"
        "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{raise_exception('roles must alternate')}}{% endif %}{% endfor %}{{'<s>'}}"
        "{% for message in loop_messages %}{% if message['role'] == 'user' %}"
        "{% if loop.last and system_message is defined %}"
        "{{'[INST]' + system_message + '\n\n' + message['content'] + '[/INST]'}}"
        "{% else %}{{'[INST]' + message['content'] + '[/INST]'}}{% endif %}"
        "{% elif message['role'] == 'assistant' %}{% generation %}{{message['content'] + '</s>'}}{% endgeneration %}"
        "{% else %}{{raise_exception('only user and assistant')}}{% endif %}{% endfor %}"
    ),
}

CONVERSATIONS = [
    [("user", "to be"), ("assistant", "or not to be")],
    [("system", "be brief"), ("user", "to"), ("assistant", "be"), ("user", "not"), ("assistant", "to be")],
    [("user", "  to\n"), ("assistant", "\n\n to be  ")],
    [("user", "cafe\u0301 \u00a0"), ("assistant", "\u3000d\u00e9ja\u0300 vu \u00fc \u2028")],
    [("assistant", "to"), ("assistant", ""), ("user", "")],
    [("user", "only a question")],
    [("system", "be brief"), ("user", "to"), ("assistant", "be"), ("user", "not")],
    [("user", "to"), ("assistant", ""), ("user", ""), ("assistant", " be \n")],
]


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        description = json.load(file) | {"decoder": None}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(description)), bos_token="<|begin_of_text|>"
    )
    for name, template in TEMPLATES.items():
        for conversation in CONVERSATIONS:
            messages = [{"role": role, "content": content} for role, content in conversation]
            try:
                encoded = tokenizer.apply_chat_template(
                    messages, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
                )
            except TemplateError:  # roles that do not alternate
                continue
            ids, mask = encoded["input_ids"], encoded["assistant_masks"]
            labels = [token if chosen else -100 for token, chosen in zip(ids, mask)]
            print(json.dumps({"template": name, "messages": messages, "input_ids": ids, "labels": labels}))


if __name__ == "__main__":
    main()
