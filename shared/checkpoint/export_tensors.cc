#include "shared/checkpoint/export_tensors.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "shared/archive/zip_writer.h"
#include "shared/base/sha256.h"
#include "shared/checkpoint/tensor_header.h"
#include "shared/checkpoint/tensor_pickle.h"

namespace stoker::checkpoint {
namespace {

constexpr uint64_t kCopyBytes = 4 << 20;
constexpr uint64_t kStorageAlignment = 64;  // PyTorch's own: mapped into memory, they can be used
constexpr char kFolder[] = "archive/";      // what PyTorch calls it where it has no file's name
constexpr size_t kIdDigits = 40;

using Append = std::function<Status(std::span<const std::byte>)>;

Status copy_tensor(const SafetensorsFile& file, const TensorSpec& spec,
                   std::vector<std::byte>& chunk, const Append& append, const OnBytes& on_bytes) {
  for (uint64_t at = 0; at < spec.bytes(); at += kCopyBytes) {
    chunk.resize(std::min(kCopyBytes, spec.bytes() - at));
    STOKER_RETURN_IF_ERROR(file.read_part(spec.name, at, chunk));
    STOKER_RETURN_IF_ERROR(append(chunk));
    if (on_bytes) on_bytes(chunk.size());
  }
  return {};
}

struct Source {
  TensorSpec spec;  // as it is called in the file that is written
  const ExportPart* part = nullptr;
  std::string name;  // as it is called in the part
};

// A number as long as the one that PyTorch makes of an archive's content; the same content, the same.
std::string id_of(const std::string& pickle) {
  std::string digits;
  for (const char c : sha256_hex(pickle)) digits += static_cast<char>('0' + c % 10);
  return digits.substr(0, kIdDigits);
}

}  // namespace

Status export_safetensors(std::span<const ExportPart> parts,
                          const std::map<std::string, std::string>& metadata, NewFile& out,
                          const OnBytes& on_bytes) {
  std::vector<Source> sources;
  for (const ExportPart& part : parts) {
    for (const TensorSpec& spec : part.file->tensors()) {
      Source& source = sources.emplace_back(Source{spec, &part, spec.name});
      if (parts.size() > 1) source.spec.name = part.name + '.' + spec.name;
      STOKER_RETURN_IF_ERROR(check_tensor_name(source.spec.name));
    }
  }
  // As make_safetensors_layout(): the largest elements first.
  std::ranges::stable_sort(sources, std::ranges::greater(),
                           [](const Source& source) { return dtype_bytes(source.spec.dtype); });
  TensorHeader header{{}, metadata};
  uint64_t offset = 0;
  for (const Source& source : sources) {
    header.tensors.push_back({source.spec, offset, offset + source.spec.bytes()});
    offset += source.spec.bytes();
  }
  const std::string head = format_tensor_header(header);
  STOKER_RETURN_IF_ERROR(out.append(std::as_bytes(std::span(head))));
  std::vector<std::byte> chunk;
  const Append append = [&out](std::span<const std::byte> bytes) { return out.append(bytes); };
  for (const Source& source : sources)
    STOKER_RETURN_IF_ERROR(copy_tensor(*source.part->file, *source.part->file->find(source.name),
                                       chunk, append, on_bytes));
  return {};
}

Status export_torch(std::span<const ExportPart> parts, uint64_t step, NewFile& out,
                    const OnBytes& on_bytes) {
  std::vector<PickledPart> dicts;
  for (const ExportPart& part : parts) dicts.push_back({part.name, part.file->tensors()});
  const std::string pickle =
      parts.size() == 1 ? pickle_tensors(dicts.front().tensors) : pickle_parts(dicts, step);
  const std::string folder = kFolder;
  archive::ZipWriter zip([&out](std::span<const std::byte> bytes) { return out.append(bytes); });
  STOKER_RETURN_IF_ERROR(zip.add(folder + "data.pkl", pickle));
  STOKER_RETURN_IF_ERROR(zip.add(folder + ".format_version", "1"));
  STOKER_RETURN_IF_ERROR(zip.add(folder + ".storage_alignment", std::to_string(kStorageAlignment)));
  STOKER_RETURN_IF_ERROR(zip.add(folder + "byteorder", "little"));
  std::vector<std::byte> chunk;
  const Append append = [&zip](std::span<const std::byte> bytes) { return zip.append(bytes); };
  size_t key = 0;
  for (const ExportPart& part : parts) {
    for (const TensorSpec& spec : part.file->tensors()) {
      STOKER_RETURN_IF_ERROR(
          zip.begin(folder + "data/" + std::to_string(key++), spec.bytes(), kStorageAlignment));
      STOKER_RETURN_IF_ERROR(copy_tensor(*part.file, spec, chunk, append, on_bytes));
    }
  }
  STOKER_RETURN_IF_ERROR(zip.add(folder + "version", "3\n"));
  STOKER_RETURN_IF_ERROR(zip.add(folder + ".data/serialization_id", id_of(pickle)));
  return zip.finish();
}

}  // namespace stoker::checkpoint
