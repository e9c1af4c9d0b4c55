// export_tensors: the tensors of a checkpoint as one file for other programs: .safetensors, or what
// torch.load(weights_only=True) reads. Piece by piece: no tensor has to be in memory.
//
// Threads:  functions of their arguments.
// Blocking: as long as reading and writing all of it take.
// Errors:   those of SafetensorsFile and NewFile.
// Format:   docs/checkpoint-format.md.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "shared/base/status.h"
#include "shared/checkpoint/hashed_files.h"
#include "shared/checkpoint/new_file.h"
#include "shared/checkpoint/safetensors.h"

namespace stoker::checkpoint {

struct ExportPart {
  std::string name;  // "model"
  const SafetensorsFile* file = nullptr;
};

// A single part keeps its names; of several, each name is preceded by the part's and a dot. To commit
// the file is left to the caller.
Status export_safetensors(std::span<const ExportPart> parts,
                          const std::map<std::string, std::string>& metadata, NewFile& out,
                          const OnBytes& on_bytes);
// A dict of name -> tensor; of several parts, a dict of such dicts by the parts' names, with `step`.
Status export_torch(std::span<const ExportPart> parts, uint64_t step, NewFile& out,
                    const OnBytes& on_bytes);

}  // namespace stoker::checkpoint
