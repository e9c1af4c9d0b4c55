// TorchArchive: the zip archive of a torch.save file: its pickle, and its storages.
//
// Threads: one object per thread.
// Errors:  as TorchFile's.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "shared/archive/zip_directory.h"
#include "shared/base/status.h"
#include "shared/base/unique_fd.h"

namespace stoker::checkpoint {

class TorchArchive {
 public:
  static Result<TorchArchive> open(UniqueFd fd, const std::string& path_in_messages);

  const std::string& path() const { return file_.path; }
  // The bytes of data.pkl, checked against its checksum.
  Result<std::vector<std::byte>> read_pickle() const;
  // kCorrupt: there is no such storage, or it has fewer bytes.
  Status check_storage(const std::string& key, uint64_t bytes) const;
  // Part of a storage that check_storage() has found to be large enough. The first time the whole
  // storage is read, to check it.
  Status read(const std::string& key, uint64_t offset, std::span<std::byte> out) const;

 private:
  TorchArchive() = default;
  Status find_members();
  Status check_byte_order() const;
  const archive::ZipMember* find(const std::string& name) const;  // without the prefix
  Status corrupt(const std::string& what) const;
  Status verify_checksum(const archive::ZipMember& member, uint64_t begin) const;

  UniqueFd fd_;
  archive::ArchiveFile file_;
  std::map<std::string, archive::ZipMember> members_;  // by name without the archive's own prefix
  bool has_checksums_ = true;
  mutable std::map<std::string, uint64_t> checked_;  // storages by key: where their bytes begin
};

}  // namespace stoker::checkpoint
