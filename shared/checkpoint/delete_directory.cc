#include "shared/checkpoint/delete_directory.h"

namespace stoker::checkpoint {

Status delete_directory(FileSystem& files, const std::string& directory,
                        const std::vector<std::string>& hidden_names) {
  if (hidden_names.empty()) return {};
  STOKER_RETURN_IF_ERROR(files.sync_directory(directory));
  for (const std::string& name : hidden_names)
    STOKER_RETURN_IF_ERROR(files.remove_tree(join_path(directory, name)));
  return {};
}

}  // namespace stoker::checkpoint
