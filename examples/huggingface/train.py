"""Trains a small GPT-2 with transformers' Trainer: python train.py --batch 4 --seq 64 --steps 100"""

import argparse
import tempfile

import stepladder
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser(description=__doc__)
for name, default in (("batch", 4), ("seq", 64), ("steps", 100), ("seed", 1337), ("vocab", 512)):
    parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
parser.add_argument("--lr", type=float, default=1e-3)
args = parser.parse_args()

torch.manual_seed(args.seed)
tokens = (args.vocab * torch.rand(100_000 // args.seq, args.seq) ** 3).long()  # the smaller the likelier
samples = [{"input_ids": row, "labels": row} for row in tokens]
model = GPT2LMHeadModel(GPT2Config(vocab_size=args.vocab, n_positions=args.seq, n_embd=128, n_layer=4, n_head=4,
                                   bos_token_id=None, eos_token_id=None))
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(folder, max_steps=args.steps, per_device_train_batch_size=args.batch, seed=args.seed,
                                 learning_rate=args.lr, save_strategy="no", report_to="none", disable_tqdm=True)
    Trainer(model, settings, train_dataset=samples[8:], eval_dataset=samples[:8],
            callbacks=[stepladder.TrainerCallback(seq=args.seq, dtype="fp32")]).train()
