// JpegFolder: JPEG files in class folders, and their bytes: made for a benchmark, or somebody's
// own.
//
// Owner:  the files that were made go with the object.
// Errors: those of the files; a folder without JPEGs is kNotFound.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/scratch_folder.h"
#include "shared/base/status.h"
#include "shared/dataset/dataset.h"

namespace stoker::bench {

struct JpegFolder {
  std::shared_ptr<ScratchFolder> scratch;
  std::string root;
  std::vector<std::string> paths;
  std::vector<std::string> jpegs;  // what is in them

  // The folder as a data set of format image_folder; `config` says how, without path and glob.
  Result<std::shared_ptr<dataset::Dataset>> open(config::ImageFolderDataset config,
                                                 const std::string& name) const;
};

Result<std::shared_ptr<JpegFolder>> make_jpeg_folder(const Options& options, uint64_t count,
                                                     uint32_t width, uint32_t height);
// The folder that STOKER_DATA names, which holds a folder per class; nothing where it is not set.
Result<std::shared_ptr<JpegFolder>> find_given_jpeg_folder(const Options& options);

}  // namespace stoker::bench
