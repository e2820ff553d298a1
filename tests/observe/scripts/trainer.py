"""Hugging Face's Trainer: accumulation, checkpointed activations, bf16."""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=100, num_key_value_heads=2, **sizes))
data = [{"input_ids": torch.arange(32) % 100, "labels": torch.arange(32) % 100} for _ in range(4000)]
arguments = TrainingArguments(
    tempfile.mkdtemp(),
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    gradient_checkpointing=True,
    bf16=True,
    use_cpu=True,
    max_steps=400,
    report_to=[],
    save_strategy="no",
    logging_steps=5,
)
Trainer(model, arguments, train_dataset=data).train()
