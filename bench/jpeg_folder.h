// JpegFolder: JPEG files in class folders, with their contents; generated for a benchmark or given
// by the user.
//
// Ownership: generated files are removed with the object.
// Errors:    those of file access; kNotFound: the folder has no JPEG files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/scratch_folder.h"
#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/dataset.h"

namespace stoker::bench {

struct JpegFolder {
  std::shared_ptr<ScratchFolder> scratch;
  std::string root;
  std::vector<std::string> paths;
  std::vector<std::string> jpegs;  // file contents

  // Opens the folder as a dataset of format image_folder with the options of `config`, except path
  // and glob.
  Result<std::shared_ptr<data::Dataset>> open(config::ImageFolderDataset config,
                                              const std::string& name,
                                              uint64_t cache_bytes = 0) const;
};

Result<std::shared_ptr<JpegFolder>> make_jpeg_folder(const Options& options, uint64_t count,
                                                     uint32_t width, uint32_t height);
// The folder in STOKER_DATA, which has one folder per class; null if the variable is not set.
Result<std::shared_ptr<JpegFolder>> find_user_jpeg_folder(const Options& options);

}  // namespace stoker::bench
