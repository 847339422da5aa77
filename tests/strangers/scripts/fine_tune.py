"""A script with Hugging Face's Trainer as its pages have it: it goes on from its last checkpoint, if there is one."""

import os
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Reviews(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        return {"input_ids": torch.randint(0, 100, (16,)), "labels": index % 2}


class Said(TrainerCallback):
    def on_epoch_begin(self, args, state, control, **kwargs):
        print(f"epoch {int(state.epoch)} begins", flush=True)


def main():
    training_args = TrainingArguments(
        output_dir="results",
        num_train_epochs=int(sys.argv[1]),
        per_device_train_batch_size=10,
        logging_steps=5,
        save_strategy="epoch",
        save_total_limit=2,
    )
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=100, **sizes))
    trainer = Trainer(model=model, args=training_args, train_dataset=Reviews(), callbacks=[Said()])
    last = get_last_checkpoint(training_args.output_dir) if os.path.isdir(training_args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)


if __name__ == "__main__":
    main()
