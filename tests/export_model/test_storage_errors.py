"""Storage errors: a full disk and a removed folder, which TensorFlow reports with its own error classes."""

import pytest

from keras_attn_export import BundleError
from keras_attn_export._export.storage_errors import translate_storage_errors


def test_full_disk_is_reported_for_errors_of_tensorflow(tmp_path):
    error = ValueError("the model cannot be traced")
    error.__cause__ = RuntimeError("file.tmp; No space left on device")  # TensorFlow's message
    message = r"Cannot write bundle: No space left on device\."
    with pytest.raises(BundleError, match=message), translate_storage_errors("bundle", tmp_path):
        raise error


def test_removed_temporary_folder_is_reported(tmp_path):
    expected_error = pytest.raises(BundleError, match="has removed the temporary folder")
    with expected_error, translate_storage_errors("bundle", tmp_path / "bundle"):
        raise KeyError("variables")


def test_other_errors_stay_unchanged(tmp_path):
    with pytest.raises(ValueError, match="something else"), translate_storage_errors("bundle", tmp_path):
        raise ValueError("something else")
