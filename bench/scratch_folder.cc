#include "bench/scratch_folder.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "shared/base/file.h"

namespace stoker::bench {

Result<std::shared_ptr<ScratchFolder>> ScratchFolder::create(const std::string& dir) {
  const char* temporary = std::getenv("TMPDIR");
  std::string path = !dir.empty() ? dir : temporary != nullptr ? temporary : "/tmp";
  path += "/stoker-bench-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return Status::from_errno(errno, "mkdtemp " + path);
  return std::shared_ptr<ScratchFolder>(new ScratchFolder(path));
}

ScratchFolder::~ScratchFolder() {
  const Status status = default_file_system().remove_tree(path_);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
}

}  // namespace stoker::bench
