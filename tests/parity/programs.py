"""Programs: the programs of a build, for the scripts of this folder that train with them."""
import json
import subprocess


class Programs:
    """Configurations, runs and what they export are in `folder`."""

    def __init__(self, folder, bin_folder):
        self.folder, self.bin = folder, bin_folder

    def run(self, *command):
        result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{command}: {result.stderr}{result.stdout}"
        return result.stdout

    def train(self, config, name):
        self.run(self.bin / "stokerd", "--config", config, "--run-dir", self.folder / name)

    def evaluate(self, name, *arguments):
        """The metrics of val by step."""
        self.run(self.bin / "stoker-eval", "--run-dir", self.folder / name, "--once", *arguments)
        results = [json.loads(path.read_text()) for path in (self.folder / name / "eval").glob("step-*.json")]
        return {result["step"]: result["datasets"]["val"] for result in sorted(results, key=lambda each: each["step"])}

    def export(self, name, *arguments):
        output = self.folder / "_".join(word.strip("-") for word in (name, "exported", *arguments))
        self.run(self.bin / "stokerctl", "--run-dir", self.folder / name, "export", "latest", *arguments, "--output", output)
        return output
