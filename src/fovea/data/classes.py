"""Names of well-known classes."""


def imagenet_labels() -> tuple[str, ...]:
    import torchvision

    return tuple(torchvision.models.ResNet18_Weights.IMAGENET1K_V1.meta["categories"])
