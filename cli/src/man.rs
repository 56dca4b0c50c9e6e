//! `leasehold man`.

use clap_mangen::Man;

use crate::failure::{Failure, status};
use crate::output::write_out;

/// Prints one page: the command, and each subcommand as a section with its options.
pub(crate) fn print(mut command: clap::Command) -> Result<u8, Failure> {
    command.build();
    let mut page = Vec::new();
    let rendered = render(&command, &mut page);
    rendered
        .map_err(|e| Failure::new(status::UNAVAILABLE, format!("cannot make the man page: {e}")))?;
    write_out(&page).map(|_| 0)
}

fn render(command: &clap::Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    let man = Man::new(command.clone());
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    for subcommand in command.get_subcommands().filter(|one| one.get_name() != "help") {
        let title = format!(".SH \"LEASEHOLD {}\"\n", subcommand.get_name().to_uppercase());
        page.extend_from_slice(title.as_bytes());
        page.extend_from_slice(section(subcommand)?.as_bytes());
    }
    man.render_extra_section(page)?;
    man.render_version_section(page)
}

/// The man page of a subcommand, as part of a section.
fn section(subcommand: &clap::Command) -> std::io::Result<String> {
    let man = Man::new(subcommand.clone());
    let mut text = Vec::new();
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    // The options that all subcommands share are listed above.
    let own = subcommand.clone().mut_args(|arg| {
        let is_global = arg.is_global_set();
        arg.hide(is_global)
    });
    Man::new(own).render_options_section(&mut text)?;
    man.render_extra_section(&mut text)?;
    Ok(String::from_utf8_lossy(&text).replace(".SH ", ".SS "))
}
