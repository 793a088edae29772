//! Sets the rpath for libtorch: the folder of the build, or `libtorch/lib` beside the program.

fn main() {
    let folder = std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys sets the folder it linked against");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}:$ORIGIN/libtorch/lib");
    println!("cargo:rerun-if-changed=build.rs");
}
