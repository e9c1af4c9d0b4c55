"""script_files.py FOLDER: writes modules as PyTorch users save them. Prints, as JSON, the tensor
names of one of them and its outputs for ones in eval mode."""
import json
import sys

try:
    import torch
except ImportError:
    sys.exit(77)

folder = sys.argv[1]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(8, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Dropout(0.5)
        )
        self.head = torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.body(x.flatten(1)))


class Plain(torch.nn.Module):
    """Behaves the same in training and evaluation."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.head(x.flatten(1))


torch.manual_seed(3)
net, plain, ones = Net(), Plain(), torch.ones(2, 2, 4)
torch.jit.script(net).save(folder + "/scripted.pt")
torch.jit.trace(net, ones, check_trace=False).save(folder + "/traced_train.pt")
net.eval()
torch.jit.script(net).save(folder + "/scripted_eval.pt")
torch.jit.trace(net, ones).save(folder + "/traced_eval.pt")
torch.jit.freeze(torch.jit.script(net)).save(folder + "/frozen.pt")
torch.jit.trace(plain, ones).save(folder + "/traced_plain.pt")
torch.save(net.state_dict(), folder + "/weights.pt")
names = [n for n, _ in net.named_parameters()] + [n for n, _ in net.named_buffers()]
with torch.no_grad():
    print(json.dumps({"names": names, "outputs": net(ones).flatten().tolist()}))
