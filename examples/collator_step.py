"""Text as Trainer has it: samples of uneven length, shuffled, padded by a collator. The words are Python's own sources.

claimbench check 'batch_size=32 vs 8 >= 1.5x' --workload examples/collator_step.py:build
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import ByT5Tokenizer, DataCollatorForLanguageModeling, GPT2Config, GPT2LMHeadModel


def build(device: torch.device, settings: Mapping[str, Any]) -> Any:
    tokenizer, width = ByT5Tokenizer(), 768 if device.type == "cuda" else 64
    texts = [piece for piece in inspect.getsource(argparse).split("\n\n") if piece.strip()]
    samples = [tokenizer(text, truncation=True, max_length=settings["sequence_length"]) for text in texts]
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    batches = DataLoader(samples, settings["batch_size"], shuffle=True, drop_last=True, collate_fn=collator)
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=width, n_layer=4, n_head=width // 16)
    model = GPT2LMHeadModel(config).to(device)
    return model, batches, lambda model, batch: model(**batch, use_cache=False).loss
