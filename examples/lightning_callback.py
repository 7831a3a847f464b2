"""PyTorch Lightning: `Trainer(callbacks=[StepLabels()])`, and every batch says its step.

`phase` tells training from validation, so that a slow validation is not taken for slow steps.
"""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from ingero.annotate import annotate  # or the function of annotate.py beside this file


class StepLabels(Callback):
    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        annotate(step=trainer.global_step, epoch=trainer.current_epoch, phase="train")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        annotate(step="", phase="validation")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        annotate(step="", epoch="", phase="")
