"""Folder, options, progress and worker of one export."""

from dataclasses import dataclass
from pathlib import Path

from .._options import Options
from .._progress import Progress
from .._tracing.saved_model_worker import SavedModelRun


@dataclass(frozen=True)
class ExportRun:
    """The arguments of every stage of one export.

    Attributes:
        folder: The empty folder that becomes the bundle. Files that the bundle does not keep are written beside it.
        options: The options of the export.
        step: Called with the name of each step.
        worker: A process that waits for a SavedModel.
    """

    folder: Path
    options: Options
    on_step: Progress
    worker: SavedModelRun

    def temporary_path(self, name: str) -> Path:
        """Return the path of a file or folder that the bundle does not keep."""
        return self.folder.with_name(name)
