"""A model too large to run: a loader, logging, checks for NaN, a gradient scaler, clipping."""

import torch
from torch import nn
from torch.utils.data import DataLoader


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.tensor([index % 7, 1, 2, 3] * 32)


layer = nn.TransformerEncoderLayer(8192, 64, 32768, batch_first=True)
model = nn.Sequential(nn.Embedding(32000, 8192), nn.TransformerEncoder(layer, 12), nn.Linear(8192, 32000))
model = model.to(torch.device("cuda", 0))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
scaler = torch.amp.GradScaler("cpu")
for tokens in DataLoader(Texts(), batch_size=4, num_workers=2):
    if tokens.max().item() > 31999 or (tokens < 0).any():
        raise ValueError("data are real, so this must not happen")
    tokens = tokens.cuda(non_blocking=True)
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    if torch.isnan(loss) or not torch.isfinite(loss):
        raise ValueError("no NaN without numbers")
    print(f"loss {loss.item():.3f} {float(loss):.2f}")
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    print("norm", float(norm))
    scaler.step(optimizer)
    scaler.update()
    raise AssertionError("a fake run ends with its first optimizer step")
