"""PyTorch Lightning, whose Trainer evaluates before it trains."""

import pytorch_lightning as lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("accuracy", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


data = TensorDataset(torch.randn(800, 16), torch.zeros(800, dtype=torch.long))
trainer = lightning.Trainer(
    accelerator="cpu", max_epochs=500, logger=False, enable_checkpointing=False, enable_progress_bar=False
)
trainer.fit(Classifier(), DataLoader(data, batch_size=8), DataLoader(data, batch_size=40))
