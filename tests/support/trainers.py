"""Small scripts in which a library's Trainer trains: 60 steps on each of two nodes, in three epochs."""

DATA = """
import os
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(400, 8), torch.randint(0, 2, (400,)))
"""
LIGHTNING = f"""{DATA}
import lightning
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 2)
    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def validation_step(self, batch, index):
        pass
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
trainer = lightning.Trainer(
    num_nodes=int(os.environ["NNODES"]), devices=1, accelerator="cpu", max_epochs=3, logger=False,
    enable_checkpointing=False,
)
trainer.fit(Net(), DataLoader(data, batch_size=10), DataLoader(data, batch_size=100))
"""
HUGGING_FACE = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        return {"input_ids": torch.randint(0, 100, (16,)), "labels": index % 2}
sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
arguments = TrainingArguments(
    "out", use_cpu=True, disable_tqdm=True, logging_steps=5, save_strategy="no",
    num_train_epochs=3, per_device_train_batch_size=10, eval_strategy="epoch",
)
model = BertForSequenceClassification(BertConfig(vocab_size=100, **sizes))
Trainer(model=model, args=arguments, train_dataset=Data(), eval_dataset=Data()).train()
"""
TOLD = {"step": 60, "totalSteps": 60, "epoch": 3}
"""What the job's status reports of each script in the end."""
