"""What local optimisers do with buffers and frozen parameters, and which parameters they refuse. SPDX-License-Identifier:
Apache-2.0"""
import unittest

import torch
from torch import nn

import thinwire.torch as tw
from held_test import said_by, sgd
from ranks import on_ranks


def averaging(model):
    return tw.PeriodicAveraging(sgd(model.parameters()), model, tau=1)


def of_all_forms(rank, size):
    """Buffers and a frozen parameter of rank `size - 1`, and the memory beside them, as they are then."""
    model = nn.Linear(4, 4)
    big = torch.full((4, 8), float(rank))
    one = torch.full((1, 3), float(rank))
    forms = {
        "part": big[:, :4], "turned": torch.arange(6.0).view(2, 3).add(10 * rank).t(),
        "expanded": one.expand(1000, 3), "constant": torch.full((1,), float(rank)).expand(1000),
        "empty": torch.zeros(0, 2), "scalar": torch.tensor(5 + rank), "flags": torch.tensor([rank == 0, True]),
        "complex": torch.full((3,), complex(rank, 1)), "conjugate": torch.full((3,), complex(rank, 1)).conj(),
        "short": torch.full((2,), float(rank), dtype=torch.bfloat16)}
    for name, tensor in forms.items():
        model.register_buffer(name, tensor)
    model.register_parameter("frozen", nn.Parameter(torch.full((8, 2), float(rank))[::2], requires_grad=False))
    averaging(model)
    shapes = {name: list(getattr(model, name).shape) for name in forms}
    return ({name: getattr(model, name).flatten()[:6].resolve_conj().tolist() for name in (*forms, "frozen")}, shapes,
            big[:, 4:].unique().tolist(), one.tolist())


def refused(rank, size):
    def said(change, model=None):
        model = model or nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
        model = change(model) or model
        return said_by(lambda: averaging(model))

    def buffer(tensor):
        return lambda model: model.register_buffer("mask", tensor)

    def shared(model):
        model[1].weight.data = model[0].weight.data

    def shared_in_part(model):
        values = torch.zeros(24)
        model[0].weight.data, model[1].weight.data = values[:16].view(4, 4), values[8:].view(4, 4)

    def beside(model):
        """In one piece of memory, one behind the other: nothing is shared."""
        values = torch.zeros(4, 8)
        model[0].weight.data, model[1].weight.data = values[:2].view(4, 4), values[2:].view(4, 4)

    def tied(model):
        model[1].weight = model[0].weight

    def one_more(model):
        if rank == 1:
            model.register_buffer("mask", torch.zeros(2))

    row = torch.zeros(1, 3).expand(4, 3)
    overlapping = torch.arange(4.0).as_strided((3, 2), (1, 1))
    return {
        "expanded here": said(buffer(row if rank == 0 else row.contiguous())),
        "expanded there": said(buffer(row if rank == 1 else row.contiguous())),
        "sparse there": said(buffer(torch.eye(2).to_sparse() if rank == 1 else torch.eye(2))),
        "meta there": said(buffer(torch.eye(2, device="meta" if rank == 1 else "cpu"))),
        "overlap there": said(buffer(overlapping if rank == 1 else overlapping.contiguous())),
        "float64": said(lambda model: model.double()), "complex": said(lambda model: model.to(torch.complex64)),
        "meta": said(lambda model: model.to("meta")), "half": said(lambda model: model.half()),
        "shared": said(shared), "shared in part": said(shared_in_part), "beside": said(beside), "tied": said(tied),
        "overlap": said(buffer(overlapping)), "sparse": said(buffer(torch.eye(2).to_sparse())),
        "shape": said(buffer(torch.zeros(2 + rank))), "type": said(buffer(torch.zeros(2, dtype=(torch.int32, torch.int64)[rank]))),
        "one more": said(one_more), "frozen": said(lambda model: model[1].requires_grad_(rank == 0) and None),
    }


def converted(rank, size):
    model = nn.Linear(4, 4)
    optimizer = averaging(model)
    model.double()
    model(torch.ones(1, 4, dtype=torch.float64)).sum().backward()
    return said_by(optimizer.step)


class Rest(unittest.TestCase):
    def test_of_a_model_begins_as_rank_0_has_it_and_nothing_else_is_written(self):
        (first, shapes, *_), (second, others, beside, one) = on_ranks(2, of_all_forms)
        self.assertEqual(second, first)
        self.assertEqual(first["part"], [0.0] * 6)
        self.assertEqual(first["scalar"], [5])
        self.assertEqual(first["conjugate"], [complex(0, -1)] * 3)
        self.assertEqual((shapes, beside, one), (others, [1.0], [[0.0] * 3]))

    def test_that_cannot_be_written_or_differs_is_refused(self):
        expected = {
            "expanded here": r"MismatchError: .* float32 \[4, 3\] expanded in dimensions \[0\] on rank 0, and float32 \[4, 3\] on rank 1",
            "expanded there": r"on rank 0, and float32 \[4, 3\] expanded in dimensions \[0\] on rank 1",
            "sparse there": r"MismatchError: .* and float32 \[2, 2\] \(torch.sparse_coo on cpu\) on rank 1",
            "meta there": r"MismatchError: .* and float32 \[2, 2\] \(torch.strided on meta\) on rank 1",
            "overlap there": r"MismatchError: .* and float32 \[3, 2\] with values that share memory on rank 1",
            "float64": "PeriodicAveraging: parameter '0.weight' is of type torch.float64; it may be one of float32, bfloat16, float16$",
            "complex": "is of type torch.complex64", "meta": "PeriodicAveraging: parameter '0.weight' is on meta",
            "half": "^nothing", "shared": "'0.weight' and '1.weight' share memory", "shared in part": "share memory",
            "beside": "^nothing", "tied": "^nothing", "overlap": "buffer 'mask' has values that share memory",
            "sparse": "buffer 'mask' is torch.sparse_coo",
            "shape": r"MismatchError: buffer 'mask' is float32 \[2\] on rank 0, and float32 \[3\] on rank 1",
            "type": r"buffer 'mask' is int32 \[2\] on rank 0, and int64 \[2\] on rank 1",
            "one more": r"buffer 'mask' is absent on rank 0, and float32 \[2\] on rank 1", "frozen": "MismatchError"}
        for found in on_ranks(2, refused):
            self.assertEqual(found.keys(), expected.keys())
            for name, text in expected.items():
                self.assertRegex(found[name], text, name)

    def test_parameters_of_another_type_than_they_were_are_refused(self):
        for text in on_ranks(2, converted):
            self.assertRegex(text, "parameter 'weight' was of type torch.float32 .* is of torch.float64 now")


if __name__ == "__main__":
    unittest.main()
