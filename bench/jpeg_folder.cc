#include "bench/jpeg_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "bench/feed_run.h"
#include "bench/jpeg_image.h"
#include "shared/base/file.h"

namespace stoker::bench {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
constexpr const char* kNames = "**/*.{jpg,jpeg,JPG,JPEG}";

bool is_jpeg_name(const std::filesystem::path& path) {
  const std::string ending = path.extension().string();
  return ending == ".jpg" || ending == ".jpeg" || ending == ".JPG" || ending == ".JPEG";
}

}  // namespace

Result<std::shared_ptr<data::Dataset>> JpegFolder::open(config::ImageFolderDataset config,
                                                        const std::string& name,
                                                        uint64_t cache_bytes) const {
  config.path = root;
  config.glob = kNames;
  STOKER_ASSIGN_OR_RETURN(
      auto dataset,
      open_train_set({.source = std::move(config)}, scratch->file("index-" + name), cache_bytes));
  return std::shared_ptr<data::Dataset>(std::move(dataset));
}

Result<std::shared_ptr<JpegFolder>> make_jpeg_folder(const Options& options, uint64_t count,
                                                     uint32_t width, uint32_t height) {
  auto folder = std::make_shared<JpegFolder>();
  STOKER_ASSIGN_OR_RETURN(folder->scratch, ScratchFolder::create(options.dir));
  folder->root = folder->scratch->file("images");
  for (uint64_t i = 0; i < count; ++i) {
    const std::string class_dir = folder->root + (i % 2 == 0 ? "/even" : "/odd");
    if (i < 2) STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), class_dir));
    STOKER_ASSIGN_OR_RETURN(std::string jpeg, make_jpeg(width, height, i));
    folder->paths.push_back(class_dir + "/" + std::to_string(i) + ".jpg");
    STOKER_RETURN_IF_ERROR(
        write_file_atomically(default_file_system(), folder->paths.back(), jpeg));
    folder->jpegs.push_back(std::move(jpeg));
  }
  return folder;
}

Result<std::shared_ptr<JpegFolder>> find_user_jpeg_folder(const Options& options) {
  const char* const root = std::getenv("STOKER_DATA");
  if (!root || *root == '\0' || options.quick) return std::shared_ptr<JpegFolder>();
  auto folder = std::make_shared<JpegFolder>();
  STOKER_ASSIGN_OR_RETURN(folder->scratch, ScratchFolder::create(options.dir));
  folder->root = root;
  std::error_code error;
  for (auto entry = std::filesystem::recursive_directory_iterator(root, error);
       !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    if (!is_jpeg_name(entry->path())) continue;
    STOKER_ASSIGN_OR_RETURN(std::string jpeg, read_file(entry->path().string(), kMaxBytes));
    folder->paths.push_back(entry->path().string());
    folder->jpegs.push_back(std::move(jpeg));
  }
  if (error) return Status::from_errno(error.value(), "STOKER_DATA: " + folder->root);
  if (folder->jpegs.empty())
    return Status(StatusCode::kNotFound, "STOKER_DATA: " + folder->root + " has no JPEG files");
  return folder;
}

}  // namespace stoker::bench
