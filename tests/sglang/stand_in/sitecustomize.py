"""Let `import torchvision` succeed beside a CPU build of torch.

The released wheel's compiled part wants CUDA; without it, the package fails at import because two operators that it
describes were never declared. Nothing here calls them.
"""

import torch

for _name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
