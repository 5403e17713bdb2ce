"""tw.compress under frameworks that wrap the model: Accelerate and Lightning. SPDX-License-Identifier: Apache-2.0"""
import importlib.util
import os
import unittest
import warnings

import torch
from torch import nn

from nets import batch_of, make_net, weights_of
from ranks import on_ranks

STEPS = 6


def make_optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9)


def has_momentum(optimizer):
    """Whether torch's own momentum has acted."""
    return any("momentum_buffer" in state for state in optimizer.state.values())


def as_torchrun_does(rank, size):
    """What starts several processes tells them, and what frameworks read."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size), GROUP_RANK="0",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="29999", TORCHELASTIC_RUN_ID="test", ACCELERATE_USE_CPU="true",
                      CUDA_VISIBLE_DEVICES="")
    warnings.simplefilter("ignore")


def plainly(rank, size):
    """Weights after STEPS steps of DistributedDataParallel."""
    model = nn.parallel.DistributedDataParallel(make_net())
    optimizer = make_optimizer(model.parameters())
    for step in range(STEPS):
        images, labels = batch_of(step, rank)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return weights_of(model)


def with_accelerate(rank, size, codec):
    as_torchrun_does(rank, size)
    import accelerate

    import thinwire.torch as tw
    accelerator = accelerate.Accelerator(cpu=True)
    net = make_net()
    model, optimizer = accelerator.prepare(net, make_optimizer(net.parameters()))
    link = tw.compress(model, codec, optimizer=optimizer)
    for step in range(STEPS):
        images, labels = batch_of(step, rank)
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(images), labels))
        optimizer.step()
    return weights_of(model), link.metrics()["step"], link.metrics()["sent_bytes"], has_momentum(optimizer.optimizer)


def with_lightning(rank, size, codec):
    as_torchrun_does(rank, size)
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    import thinwire.torch as tw

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = make_net()

        def training_step(self, step, _):
            images, labels = batch_of(int(step), rank)
            return nn.functional.cross_entropy(self.net(images), labels)

        def configure_optimizers(self):
            return make_optimizer(self.parameters())

    class Compress(lightning.Callback):
        def on_train_start(self, trainer, module):
            self.link = tw.compress(trainer.strategy.model, codec, optimizer=trainer.optimizers[0])

    compress, module = Compress(), Module()
    trainer = lightning.Trainer(accelerator="cpu", devices=size, strategy=DDPStrategy(process_group_backend="gloo"),
                                max_epochs=1, callbacks=[compress], logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False)
    trainer.fit(module, torch.utils.data.DataLoader(range(STEPS), batch_size=None))
    metrics = compress.link.metrics()
    return weights_of(module), metrics["step"], metrics["sent_bytes"], has_momentum(trainer.optimizers[0])


class Frameworks(unittest.TestCase):
    def check(self, work):
        plain = on_ranks(2, plainly)
        lossless, sparse = (on_ranks(2, work, codec) for codec in ("fp32", "topk:density=0.05"))
        for rank in range(2):
            self.assertLess((lossless[rank][0] - plain[rank]).abs().max().item(), 1e-6)
            self.assertEqual(lossless[rank][1], STEPS)
            self.assertTrue(torch.equal(sparse[rank][0], sparse[0][0]))
            self.assertGreater((sparse[rank][0] - plain[rank]).abs().max().item(), 1e-4)
            self.assertEqual((lossless[rank][3], sparse[rank][3]), (True, False))  # it is in the memory of the sparse codec
            self.assertLess(5 * sparse[rank][2], lossless[rank][2])

    @unittest.skipUnless(importlib.util.find_spec("accelerate"), "Accelerate is not installed: pip install accelerate")
    def test_accelerate(self):
        self.check(with_accelerate)

    @unittest.skipUnless(importlib.util.find_spec("lightning"), "Lightning is not installed: pip install lightning")
    def test_lightning(self):
        self.check(with_lightning)


if __name__ == "__main__":
    unittest.main()
