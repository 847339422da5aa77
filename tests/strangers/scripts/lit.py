"""A training with Lightning as its own pages have it: a module, a Trainer, checkpoints that `ckpt_path` goes on from."""

import sys

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset


class LitModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Linear(8, 2)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        self.log("train_loss", loss)
        return loss

    def on_train_epoch_start(self):
        print(f"epoch {self.current_epoch} begins", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    data = TensorDataset(torch.randn(800, 8), torch.randint(0, 2, (800,)))
    trainer = L.Trainer(
        max_epochs=int(sys.argv[1]),
        num_nodes=2,
        devices=1,
        strategy="ddp",
        callbacks=[ModelCheckpoint(dirpath="checkpoints", save_last=True)],
        logger=False,
        log_every_n_steps=5,
    )
    trainer.fit(LitModel(), DataLoader(data, batch_size=10, shuffle=True), ckpt_path="last")


if __name__ == "__main__":
    main()
