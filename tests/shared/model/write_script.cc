// write_script FILE INPUTS OUTPUTS: writes a TorchScript module for tests that start the programs.
#include <cstdlib>

#include "tests/shared/model/script_files.h"

int main(int argc, char** argv) {
  if (argc != 4) return EXIT_FAILURE;
  stoker::model::test::write_script(
      argv[1],
      {.body = "return self.linear.forward(torch.dropout(torch.flatten(x, 1), 0.1, self.training))",
       .inputs = std::atoll(argv[2]),
       .outputs = std::atoll(argv[3])});
  return EXIT_SUCCESS;
}
